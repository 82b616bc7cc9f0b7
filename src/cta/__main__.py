"""`python -m cta`, where the console script is not installed."""

from cta.cli import main

if __name__ == "__main__":
    main()
