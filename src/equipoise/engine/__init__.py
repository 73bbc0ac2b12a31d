"""What the balancers share: guards, budgets, the fenced executor, recording and status."""
