#!/usr/bin/env bash
# All tests of Sidewinder. Called by `make test`; installs what lies outside Python where it may, and says what it cannot.
set -euo pipefail
cd "$(dirname "$0")/.."

# Real parts that the tests use. Without root they must be there already; a test that lacks one says so in its skip.
need=()
command -v chromium >/dev/null || need+=(chromium fonts-dejavu-core)
command -v sshd >/dev/null || [ -x /usr/sbin/sshd ] || need+=(openssh-server)
command -v cc >/dev/null || need+=(gcc libc6-dev)
for shell in zsh fish tcsh; do command -v "$shell" >/dev/null || need+=("$shell"); done
if [ "$(id -u)" = 0 ] && [ "$(uname)" = Linux ]; then  # tests/netns: hosts in namespaces
  command -v ip >/dev/null || need+=(iproute2)
  command -v iptables >/dev/null || need+=(iptables)
fi
if [ "${#need[@]}" -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing ${need[*]}"
    (
      # The tests start servers of their own; the package must not start one for this machine.
      if [ ! -e /usr/sbin/policy-rc.d ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
        chmod 755 /usr/sbin/policy-rc.d
      fi
      apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${need[@]}"
    ) >/dev/null
  else
    echo "not here, its tests are skipped: ${need[*]}"
  fi
fi

# In CI nothing that could run may be skipped: tests/conftest.py turns such skips into failures.
# Their order is tests/conftest.py's.
exec .venv/bin/python -m pytest -q -n "${PYTEST_WORKERS:-2}" --dist loadfile --no-loadscope-reorder "$@"
