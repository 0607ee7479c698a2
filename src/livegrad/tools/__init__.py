"""Command-line tools and the tour.

`cli.py` lists the commands and `arguments.py` their arguments; commands are in `part_commands.py`,
`object_commands.py`, `run_command.py`, `replay_command.py` and `doctor.py`. `tour` is the tour behind `./run`,
`studio` the Studio in the browser.
"""
