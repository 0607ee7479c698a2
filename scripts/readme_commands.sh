# Prints the commands that README.md tells a newcomer to run, one a line. Sourced by .ci/run.

# The first block that has ./run in it is meant: its lines that begin with ./, without the words beside them.
readme_commands() {
    awk '
        /^```/ {
            if (inside && found) { printf "%s", commands; exit }
            inside = !inside; commands = ""
            next
        }
        inside && sub(/^(\$ )?\.\//, "./") {
            sub(/(  +|[ \t]+#).*$/, ""); sub(/[ \t]+$/, "")
            commands = commands $0 "\n"
            if ($0 ~ /^\.\/run( |$)/) found = 1
        }
    ' "${1:-README.md}"
}
