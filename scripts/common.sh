# Sourced by the scripts beside it: the repository root as the working directory, messages, --help from the header.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit
script=$(basename "$0")

bold='' red='' green='' yellow='' plain=''
# shellcheck disable=SC2034  # used by the scripts
if [[ -t 1 && -z ${NO_COLOR-} && ${TERM-dumb} != dumb ]]; then
  bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' yellow=$'\e[33m' plain=$'\e[0m'
fi

say() { printf '%s==>%s %s\n' "$bold" "$plain" "$*"; }
die() {
  printf '%s: %s\n' "$script" "$*" >&2
  exit 1
}

# Prints the comment at the head of the script, which is its help text.
usage() { sed -n -e '1d' -e '/^#/!q' -e 's/^# \{0,1\}//p' "$root/scripts/$script"; }

# need_value FLAG "$@": dies unless FLAG is followed by a value.
need_value() { (($# > 2)) || die "$1 needs a value (see scripts/$script --help)"; }

# The tracked C++ files, NUL-separated; without git, all that are there.
cpp_files() {
  local file
  { git ls-files -z -- '*.h' '*.cpp' '*.cu' '*.cuh' 2>/dev/null ||
    find src apps tests bench -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0; } |
    while IFS= read -r -d '' file; do
      if [[ -f $file ]]; then printf '%s\0' "$file"; fi
    done
}

trap 'printf "\n%s: interrupted\n" "$script" >&2; trap - INT; kill -INT $$' INT
