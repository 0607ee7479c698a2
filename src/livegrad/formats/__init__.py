"""Files that hold parts and shapes: read and written here."""
