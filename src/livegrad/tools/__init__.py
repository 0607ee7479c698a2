"""What people run: the tour, and the pictures it leaves."""
