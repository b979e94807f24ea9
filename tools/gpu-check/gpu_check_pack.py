# SPDX-License-Identifier: BSD-3-Clause
"""gpu-check pack: programs, tests, benchmarks, modules, recordings and the libraries that they need, from a
configured build into a folder with an archive and the scripts that run it. Used by gpu-check.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = ("gpu-check", "gpu_check_plan.py", "gpu_check_machine.py", "gpu_check_launches.py")
MAX_BYTES = 60 << 20
ARCHIVE = "tree.tar.xz"
GLIBC = re.compile(r"^(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+)\.so)")


def clean_env():
    """Without what a make above us has set."""
    return {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}


def make_variables(build, *names):
    """Values of variables of the build's Makefile, as make expands them."""
    text = "include Makefile\n" + "".join(f"show-{n}:\n\t@echo '{n}=$({n})'\n" for n in names)
    done = subprocess.run(["make", "-s", "-f", "-"] + [f"show-{n}" for n in names], cwd=build, input=text,
                          capture_output=True, text=True, env=clean_env(), check=False)
    if done.returncode:
        sys.exit(f"gpu-check: no configured build in {build}: {done.stderr.strip()}")
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def needed_libraries(paths, own):
    """Shared objects that programs need beyond glibc, with theirs (ldd follows all), but those of `own`."""
    found = {}
    done = subprocess.run(["ldd", *paths], capture_output=True, text=True, check=False,
                          env=dict(os.environ, LD_LIBRARY_PATH=own))
    for line in done.stdout.splitlines():
        match = re.match(r"\s+(\S+) => (\S+|not found)", line)
        if not match or GLIBC.match(match[1]):
            continue
        if match[2] == "not":
            sys.exit(f"gpu-check: {match[1]} is not found")
        if not match[2].startswith(own):
            found[match[1]] = os.path.realpath(match[2])
    return found


def stage_files(build, v, stage, variants):
    """Copies programs, modules, libraries, scripts, recordings into the tree; programs run in its top."""
    top = os.path.join(build, v["top_srcdir"])
    own = os.path.realpath(os.path.join(build, ".libs"))
    binaries = []

    def put(source, name):
        target = os.path.join(stage, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
        os.chmod(target, 0o755 if os.access(source, os.X_OK) else 0o644)
        return target

    for name in (v["check_PROGRAMS"] + " " + v["bin_PROGRAMS"] + " " + v["EXTRA_PROGRAMS"]).split():
        path = os.path.join(build, name)
        if os.path.exists(path):
            binaries.append(put(path, name))
    names = v["pkglib_LTLIBRARIES"] + " " + v["EXTRA_LTLIBRARIES"]
    modules = [f".libs/{os.path.basename(n)[:-3]}.so" for n in names.split()]
    for name in [n for n in modules if os.path.exists(os.path.join(build, n))]:
        binaries.append(put(os.path.join(build, name), name))
    for name in os.listdir(own):
        if re.match(r"libshardrt\.so\.\d+$", name):
            binaries.append(put(os.path.realpath(os.path.join(own, name)), "lib/" + name))
    for name, path in needed_libraries(binaries, own).items():
        put(path, "lib/" + name)
    for name, path in variants.items():
        binaries.append(put(path, f"variants/{name}/shardrt_backend_cuda.so"))
    for path in binaries:
        subprocess.run(["strip", "--strip-unneeded" if ".so" in path else "--strip-all", path], check=True)
    put(os.path.join(build, "config.h"), "config.h")
    text = b""
    for folder, ends in (("tests/*", (".sh", ".awk", ".def", ".py")), ("bench", (".sh", ".py", "kernels")),
                         ("include/shardrt", (".h",)), ("kernels", (".md", ".def", ".k")),
                         ("kernels/cases", (".def",)), ("docs", (".md",)), (".", ("README.md", "NEWS"))):
        for path in sorted(glob.glob(os.path.join(top, folder, "*"))):
            if path.endswith(ends) and os.path.isfile(path):
                put(path, os.path.relpath(path, top))
                if folder in ("docs", "include/shardrt"):
                    with open(path, "rb") as f:
                        text += f.read()
    with open(os.path.join(stage, "bench", "text.txt"), "wb") as f:
        f.write(text)  # to train on
    golden = v["SRT_GOLDEN_DIR"].strip()
    if golden and os.path.isdir(os.path.join(golden, "cases")):
        shutil.copytree(os.path.join(golden, "cases"), os.path.join(stage, "golden", "cases"),
                        copy_function=shutil.copyfile)
    with open(os.path.join(stage, "tests", "device_tests"), "w", encoding="utf-8") as f:
        f.write("\n".join(v["DEVICE_TESTS"].split()) + "\n")
    commit = subprocess.run(["git", "-C", top, "describe", "--always", "--dirty", "--abbrev=12"], text=True,
                            capture_output=True, check=False).stdout.strip()
    with open(os.path.join(stage, "VERSION"), "w", encoding="utf-8") as f:
        f.write(f"{v['PACKAGE_STRING']}{', commit ' + commit if commit else ''}\n")


def writable(info):
    info.mode |= 0o700 if info.isdir() else 0o600
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def pack(args):
    build = os.path.abspath(args.build)
    v = make_variables(build, "top_srcdir", "check_PROGRAMS", "bin_PROGRAMS", "EXTRA_PROGRAMS",
                       "pkglib_LTLIBRARIES", "EXTRA_LTLIBRARIES", "DEVICE_TESTS", "SRT_GOLDEN_DIR", "PACKAGE_STRING")
    if not args.as_built:
        names = (v["check_PROGRAMS"] + " " + v["EXTRA_PROGRAMS"] + " " + v["EXTRA_LTLIBRARIES"]).split()
        subprocess.run(["make", "-s", "all", *names], cwd=build, env=clean_env(), check=True)
    os.makedirs(args.folder, exist_ok=True)
    stage = os.path.join(args.folder, "tree")
    shutil.rmtree(stage, ignore_errors=True)
    stage_files(build, v, stage, dict(variant.split("=", 1) for variant in args.variant))
    # The programs hold the same objects: a window of 128 MiB sees them again.
    packer = f"xz -T1 -c --lzma2=preset={args.preset},dict=128MiB"
    archive = os.path.join(args.folder, ARCHIVE)
    with open(archive, "wb") as out:
        with subprocess.Popen(packer.split(), stdin=subprocess.PIPE, stdout=out) as xz:
            with tarfile.open(fileobj=xz.stdin, mode="w|") as tar:
                # the largest first, so that alike ones are near each other
                names = [os.path.join(folder, n) for folder, _, files in os.walk(stage) for n in files]
                for path in sorted(names, key=lambda p: -os.path.getsize(p)):
                    tar.add(path, os.path.relpath(path, stage), filter=writable)
            xz.stdin.close()
    if xz.returncode:
        sys.exit("gpu-check: xz failed")
    sizes = [(os.path.getsize(os.path.join(d, n)), os.path.relpath(os.path.join(d, n), stage))
             for d, _, files in os.walk(stage) for n in files]
    shutil.rmtree(stage)
    for name in SCRIPTS:
        shutil.copy(os.path.join(HERE, name), args.folder)
    total = sum(os.path.getsize(os.path.join(args.folder, n)) for n in (*SCRIPTS, ARCHIVE))
    print(f"{args.folder}: {total / 2**20:.1f} MiB, unpacked {sum(s for s, _ in sizes) / 2**20:.0f} MiB in "
          f"{len(sizes)} files")
    if total >= MAX_BYTES:
        for size, name in sorted(sizes, reverse=True)[:30]:
            print(f"{size / 2**20:8.1f} MiB {name}")
        sys.exit(f"gpu-check: more than {MAX_BYTES >> 20} MiB; the largest files are above, before compression")
    print(f"Copy it to the machine with the GPU and run there: python3 {os.path.basename(args.folder)}/gpu-check run")
