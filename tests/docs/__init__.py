"""What people read says what is so."""
