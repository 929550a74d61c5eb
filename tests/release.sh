#!/usr/bin/env bash
# scripts/release in a small repository, with a stand-in for scripts/packages: what fails, or is ended by a signal, leaves the
# branch as it was; what passes is a commit, a tag and files. Run as a test: tests/release.sh FOLDER
set -euo pipefail
unset "${!GIT_@}"  # of a hook: they would name another repository
cd "$(dirname "$0")/.."
work=$1
rm -rf "$work" && mkdir -p "$work"
cp --parents scripts/release core/version.h README.md exercises/CMakeLists.txt tests/install/CMakeLists.txt "$work"
cd "$work"
printf '## Unreleased\n\n* Something.\n' >CHANGELOG.md
printf '#!/usr/bin/env bash\nmkdir -p build/packages && touch build/packages/one.deb\neval "${THEN:-}"\n' >scripts/packages
chmod +x scripts/packages
printf '/build\n/said\n' >.gitignore
git init -q .
git config user.name test
git config user.email test@example.org
git add -A
git commit -qm "What was"
fail() { echo "release: $*" >&2 && exit 1; }

before=$(git rev-parse HEAD)
for end in 'exit 1' 'kill -TERM $PPID' 'kill -HUP $PPID'; do
  ! THEN="$end" scripts/release 99.1.0 --tested 2>said || fail "passed after $end"
  grep -q "is as it was" said || fail "says nothing after $end"
  [ "$(git rev-parse HEAD)" = "$before" ] && [ -z "$(git status --porcelain)$(git tag)" ] || fail "left something after $end"
done

scripts/release 99.1.0 --tested >/dev/null
[ "$(git describe)" = v99.1.0 ] || fail "no tag"
grep -q '^#define HALFTAPE_VERSION "99.1.0"$' core/version.h || fail "no version"
grep -q 'find_package(halftape 99.1 ' README.md || fail "README.md asks for another version"
(cd build/release && sha256sum -c --quiet SHA256SUMS)
! scripts/release 99.1.0 --tested 2>/dev/null || fail "released twice"
