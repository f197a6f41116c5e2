#!/bin/sh
# Unpacks a real llama-bench and llama-server from Debian packages below PREFIX. Nothing is installed: the programs
# start through their own unpacked loader, so the host's libc and libraries are neither used nor touched.
#
#   sh scripts/get_llama_bench.sh PREFIX [SUITE]      SUITE: testing (default)
#   PREFIX/bin/llama-bench --help                     in a lab: llamacpp: {bin_dir: PREFIX/bin}
#
# GGML_VARIANT picks the CPU build at run time (PREFIX/variants.txt lists them). PREFIX/versions.txt names the packages
# with their SHA-256: a rolling suite replaces them, so two prefixes are two engines unless these files are equal.
# Exit codes: 0 ready, 2 wrong use, 3 cannot be had here (the `llama` workload needs none of this).
set -eu

say() { printf 'get_llama_bench: %s\n' "$*"; }
give_up() {
    say "$*" >&2
    say "nothing was changed; the pip-only workload \`llama\` measures the same loops without this program" >&2
    exit 3
}

[ $# -ge 1 ] && [ $# -le 2 ] || { say "use: get_llama_bench.sh PREFIX [SUITE]" >&2; exit 2; }
case $1 in -*) say "use: get_llama_bench.sh PREFIX [SUITE]" >&2; exit 2 ;; esac
case $1 in /*) prefix=$1 ;; *) prefix=$(pwd)/$1 ;; esac
suite=${2:-testing}

if [ -x "$prefix/bin/llama-bench" ] && "$prefix/bin/llama-bench" --help >/dev/null 2>&1; then
    say "already there: $prefix/bin/llama-bench (delete $prefix to fetch again)"
    exit 0
fi
if [ -e "$prefix" ] && [ -n "$(ls -A "$prefix" 2>/dev/null)" ]; then
    say "$prefix is not empty and holds no working llama-bench: delete it or name another folder" >&2
    exit 2
fi

for tool in apt-get dpkg-deb sha256sum; do
    command -v $tool >/dev/null 2>&1 || give_up "$tool is not on this machine (a Debian-like system is needed)"
done
case $(dpkg --print-architecture 2>/dev/null || uname -m) in
    amd64) triplet=x86_64-linux-gnu loader=ld-linux-x86-64.so.2 modern=haswell plain=x64 ;;
    arm64) triplet=aarch64-linux-gnu loader=ld-linux-aarch64.so.1 modern=armv8.2_2 plain=armv8.0_1 ;;
    *) give_up "no build of llama.cpp for $(uname -m) in Debian" ;;
esac

# The mirror that this host already uses: the first archive of its own configuration that is not a security one.
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -v security | head -n 1) || true
[ -n "$mirror" ] || give_up "apt knows no archive yet: run \`apt-get update\` first"
keyring=$(ls /usr/share/keyrings/debian-archive-keyring.pgp /usr/share/keyrings/debian-archive-keyring.gpg 2>/dev/null | head -n 1) || true
[ -n "$keyring" ] || give_up "no Debian archive keyring: run \`apt-get install debian-archive-keyring\` first"

parent=$(dirname "$prefix")
mkdir -p "$parent"
work=$(mktemp -d "$parent/.get_llama_bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs" "$work/new/unpacked" "$work/new/bin"

# An apt of its own: sources, lists and cache inside the working folder, the host's state is only read.
echo "deb [signed-by=$keyring] $mirror $suite main" >"$work/sources.list"
cat >"$work/apt.conf" <<CONF
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "-";
Dir::Etc::Preferences "-";
Dir::Etc::PreferencesParts "-";
Dir::State::Lists "$work/lists";
Dir::Cache "$work/cache";
Acquire::Languages "none";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
APT::Sandbox::User "";
CONF
export APT_CONFIG="$work/apt.conf"
say "reading the package list of $suite"
apt-get -q update >"$work/apt.log" 2>&1 || { tail -n 3 "$work/apt.log" >&2; give_up "the list of $suite could not be read"; }
say "downloading llama.cpp-tools with its libraries"
(cd "$work/debs" && apt-get -q download llama.cpp-tools libllama0 libggml0 libc6 libstdc++6 libgcc-s1 libgomp1 \
    libssl3t64 zlib1g libzstd1) >>"$work/apt.log" 2>&1 || {
    tail -n 3 "$work/apt.log" >&2
    give_up "a package of $suite could not be downloaded"
}
for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$work/new/unpacked"; done
(cd "$work/debs" && sha256sum -- *.deb) >"$work/new/versions.txt"

lib=unpacked/usr/lib/$triplet
backends=$(cd "$work/new" && find "$lib" -name "libggml-cpu-$plain.so" -exec dirname {} \; | head -n 1)
[ -n "$backends" ] || give_up "the packages of $suite are laid out differently: no libggml-cpu-$plain.so below $lib"
(cd "$work/new/$backends" && ls) | sed -n 's/^libggml-cpu-\(.*\)\.so$/\1/p' >"$work/new/variants.txt"
grep -qx "$modern" "$work/new/variants.txt" || modern=$plain

for program in llama-bench llama-server; do
    [ -x "$work/new/unpacked/usr/bin/$program" ] || { say "$suite ships no $program, skipped"; continue; }
    # One variant by path and none in the search path: with both, two backends load and the wrong one is measured.
    cat >"$work/new/bin/$program" <<WRAPPER
#!/bin/sh
here=\$(CDPATH= cd -- "\$(dirname -- "\$0")/.." && pwd)
if [ -z "\${GGML_VARIANT:-}" ]; then
    GGML_VARIANT=$plain
    grep -qwE 'avx2|asimddp' /proc/cpuinfo 2>/dev/null && GGML_VARIANT=$modern
fi
export GGML_BACKEND_PATH="\$here/$backends/libggml-cpu-\$GGML_VARIANT.so" GGML_NO_BACKTRACE=1
exec "\$here/$lib/$loader" --library-path "\$here/$lib:\$here/$lib/llama" "\$here/unpacked/usr/bin/$program" "\$@"
WRAPPER
    chmod +x "$work/new/bin/$program"
done

"$work/new/bin/llama-bench" --help >/dev/null 2>"$work/try.log" || {
    tail -n 3 "$work/try.log" >&2
    give_up "llama-bench was unpacked but does not start on this machine"
}
# -T: never into a folder that another run of this script has made ready meanwhile; then that one is as good.
if ! mv -T "$work/new" "$prefix" 2>/dev/null && ! "$prefix/bin/llama-bench" --help >/dev/null 2>&1; then
    give_up "$prefix was taken by something else meanwhile"
fi
say "ready: $prefix/bin/llama-bench ($(sed -n 's/^.*  llama.cpp-tools_//p' "$prefix/versions.txt"))"
