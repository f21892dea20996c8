#!/usr/bin/env python3
"""Writes container images as one OCI archive to the standard output, for `ctr images import -`.

    images.py localhost/dev:1 layer=base.tar layer=node.tar localhost/pause:1 layer=pause.tar entry=/pause user=65535

A layer is a tar file, taken as it is; its digest is kept beside it, as FILE.digest. `held=FILE` is a layer that the image store has
already: only FILE.digest is read, and the archive leaves the layer out. Layers that are used twice are written once.
"""
import hashlib
import io
import json
import os
import platform
import sys
import tarfile

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def digest_of(path):
    """The digest and the size of a layer, from the note beside it where the file has not changed since."""
    note = path + ".digest"
    if not os.path.exists(path) or (os.path.exists(note) and os.stat(note).st_mtime >= os.stat(path).st_mtime):
        digest, size = open(note).read().split()
        return digest, int(size)
    with open(path, "rb") as layer:
        digest = "sha256:" + hashlib.file_digest(layer, "sha256").hexdigest()
    size = os.path.getsize(path)
    with open(note, "w") as out:
        out.write(f"{digest} {size}\n")
    return digest, size


class Archive:
    def __init__(self, out):
        self.tar = tarfile.open(fileobj=out, mode="w|")
        self.written = set()

    def file(self, name, size, data):
        if name not in self.written:
            self.written.add(name)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = size, 0o644
            self.tar.addfile(entry, data)

    def text(self, name, value):
        data = json.dumps(value).encode()
        self.file(name, len(data), io.BytesIO(data))

    def blob(self, kind, value):
        data = json.dumps(value).encode()
        digest = hashlib.sha256(data).hexdigest()
        self.file("blobs/sha256/" + digest, len(data), io.BytesIO(data))
        return {"mediaType": kind, "digest": "sha256:" + digest, "size": len(data)}

    def image(self, name, settings):
        """One image; what describes it in the index."""
        layers = []
        for key, path in settings:
            if key in ("layer", "held"):
                digest, size = digest_of(path)
                layers.append({"mediaType": LAYER, "digest": digest, "size": size})
                if key == "layer":
                    with open(path, "rb") as layer:
                        self.file("blobs/sha256/" + digest.removeprefix("sha256:"), size, layer)
        config = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
        config.update({"Entrypoint": [value] for key, value in settings if key == "entry"})
        config.update({"Cmd": [value] for key, value in settings if key == "command"})
        config.update({"User": value for key, value in settings if key == "user"})
        config = self.blob(CONFIG, {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        })
        manifest = self.blob(MANIFEST, {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers})
        return manifest | {"annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}}


def main():
    images = []
    for word in sys.argv[1:]:
        key, equals, value = word.partition("=")
        if equals:
            images[-1][1].append((key, value))
        else:
            images.append((word, []))
    archive = Archive(sys.stdout.buffer)
    archive.text("oci-layout", {"imageLayoutVersion": "1.0.0"})
    manifests = [archive.image(name, settings) for name, settings in images]
    archive.text("index.json", {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests})
    archive.tar.close()


main()
