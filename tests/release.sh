#!/usr/bin/env bash
# scripts/release in a small repository, with a stand-in for scripts/packages: what fails, or is ended by a signal, leaves the
# branch as it was, and what others did meanwhile; what passes is a commit, a tag and files. Run as a test: tests/release.sh FOLDER
set -euo pipefail
unset "${!GIT_@}"  # of a hook: they would name another repository
cd "$(dirname "$0")/.."
work=$1
rm -rf "$work" && mkdir -p "$work"
cp --parents scripts/release core/version.h README.md exercises/CMakeLists.txt tests/install/CMakeLists.txt "$work"
cd "$work"
printf '## Unreleased\n\n* Something.\n' >CHANGELOG.md
printf '#!/usr/bin/env bash\nmkdir -p build/packages && touch build/packages/one.deb\neval "${THEN:-}"\n' >scripts/packages
mkdir .ci
printf '#!/usr/bin/env bash\neval "${CI:-}"\n' >.ci/run
chmod +x scripts/packages .ci/run
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

# Others work in the same tree, while CI runs and while packages are made.
theirs='echo mine | tee -a README.md exercises/CMakeLists.txt other >/dev/null; git add other'
for how in "CI=$theirs" "THEN=$theirs" "THEN=$theirs; exit 1"; do
  ! env "$how" scripts/release 99.1.0 >said 2>&1 || fail "passed after $how"
  [ "$(git rev-parse HEAD)" = "$before" ] && [ -z "$(git tag)" ] || fail "left something after $how"
  [ "$(git diff HEAD | grep -c '^[+-][^+-]')" = 3 ] && [ "$(git diff HEAD | grep -c '^+mine')" = 3 ] || fail "others' edits are gone after $how"
  git reset -q --hard
done
for how in 'sed -i /HALFTAPE_VERSION/d core/version.h' 'git commit -q --allow-empty -m mine'; do
  ! THEN="$how" scripts/release 99.1.0 --tested 2>said || fail "passed after $how"
  grep -q "by hand" said || fail "does not say what is left after $how"
  git reset -q --hard "$before"
done
! CI='exit 1' scripts/release 99.1.0 2>said || fail "passed without CI"

scripts/release 99.1.0 >/dev/null
[ "$(git describe)" = v99.1.0 ] || fail "no tag"
grep -q '^#define HALFTAPE_VERSION "99.1.0"$' core/version.h || fail "no version"
grep -q 'find_package(halftape 99.1 ' README.md || fail "README.md asks for another version"
(cd build/release && sha256sum -c --quiet SHA256SUMS)
! scripts/release 99.1.0 --tested 2>/dev/null || fail "released twice"
