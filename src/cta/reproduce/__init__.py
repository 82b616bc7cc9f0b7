"""The driver of `cta reproduce`: generate, train and score what a plan asks for, side by side, within a budget."""
