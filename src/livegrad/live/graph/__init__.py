"""What users describe: blocks with pins, regions, states, and the sources that feed pins. Nothing here runs."""
