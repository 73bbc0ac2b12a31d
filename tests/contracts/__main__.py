"""`python -m tests.contracts` tells how many facts hold in how many worlds."""

from tests.support.contracts.suites import summary

if __name__ == "__main__":
    print(summary())
