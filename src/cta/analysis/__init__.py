"""What an agent learned: analogy maps with numbers beside them, and the paper's ablations."""
