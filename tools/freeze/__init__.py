"""The freeze: what the outside can see of Equipoise, as texts that a later commit is held against."""
