"""What a kubelet puts into a container's command, arguments and values of variables (Kubernetes, "Define Environment Variables for a
Container"), byte by byte as it does it."""


def expand(text, variables):
    """Puts the values of variables in for $(NAME) and one $ for two; a name that nobody set stays."""
    rest, written = text.encode(), bytearray()
    while rest:
        first, rest = rest[:1], rest[1:]
        if first != b"$" or not rest:
            written += first
        elif rest[:1] == b"$":
            written, rest = written + b"$", rest[1:]
        elif rest[:1] == b"(" and b")" in rest:
            name, rest = rest[1:].split(b")", 1)
            value = variables.get(name.decode())
            written += b"$(" + name + b")" if value is None else value.encode()
        else:
            # The next byte is taken for a character of that number.
            written, rest = written + b"$" + chr(rest[0]).encode(), rest[1:]
    return written.decode(errors="surrogateescape")


def environment(container, found):
    """Adds a container's own variables to those that it found, each with those before it put in."""
    for variable in container.get("env", []):
        if "value" in variable:
            found[variable["name"]] = expand(variable["value"], found)
    return found


def command(container, variables):
    """Returns the words of a container's command."""
    return [expand(word, variables) for word in [*container.get("command", []), *container.get("args", [])]]
