#!/bin/sh
# Installs the C API: packaging/install-capi.sh PREFIX, such as /usr/local. PREFIX and DAMELO_BUILT are
# understood from where it is called.
#
# Headers go to PREFIX/include/damelo, libraries and damelo.pc to PREFIX/lib, all of it below $DESTDIR if that
# is set. The libraries are built first, unless DAMELO_BUILT names the directory that has them.
set -eu

prefix=${1:?give a prefix, such as /usr/local}
absolute() { case $1 in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$PWD/$1" ;; esac; }
prefix=$(absolute "$prefix")
[ -z "${DESTDIR:-}" ] || DESTDIR=$(absolute "$DESTDIR")
[ -z "${DAMELO_BUILT:-}" ] || DAMELO_BUILT=$(absolute "$DAMELO_BUILT")
cd "$(dirname "$0")/.."
if [ -z "${DAMELO_BUILT:-}" ]; then
    command -v cargo >/dev/null || {
        echo "there is no cargo here: build as who has it, and name its directory with DAMELO_BUILT" >&2
        exit 1
    }
    cargo build --release --locked -p damelo-capi
    target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    DAMELO_BUILT=$target/release
fi
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
to=${DESTDIR:-}$prefix

install -d "$to/include/damelo" "$to/lib/pkgconfig"
install -m 644 crates/capi/include/damelo.h crates/capi/include/damelo.hpp \
    crates/capi/include/status.h "$to/include/damelo"
install -m 644 "$DAMELO_BUILT/libdamelo_c.a" "$to/lib"
install -m 755 "$DAMELO_BUILT/libdamelo_c.so" "$to/lib/libdamelo_c.so.$version"
ln -sf "libdamelo_c.so.$version" "$to/lib/libdamelo_c.so.0"
ln -sf libdamelo_c.so.0 "$to/lib/libdamelo_c.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" packaging/damelo.pc.in \
    >"$to/lib/pkgconfig/damelo.pc"
