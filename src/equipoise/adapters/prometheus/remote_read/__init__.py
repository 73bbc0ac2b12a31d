"""Remote read: weeks of raw samples in one answer, decoded as they come."""
