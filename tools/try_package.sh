#!/usr/bin/env bash
# Installs Debian packages in a clean system, runs the demonstration there, removes them, and looks
# for what they left. Needs root, debootstrap and a mirror.
#
# usage: tools/try_package.sh SUITE DEB…        SUITE: bookworm, or noble with MIRROR of Ubuntu's
#
# CHROOT: a folder with a system made before (by debootstrap), which is copied.
# MIRROR: where packages come from; by default the mirror of this system's apt, if it has SUITE, else
# debootstrap's own.
set -euo pipefail
suite=$1
shift
mirror=${MIRROR:-$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 2>/dev/null |
  awk -v suite="$suite" '$1 == suite && mirror == "" { mirror = $2 } END { print mirror }')}
root=$(mktemp -d)
trap 'umount "$root/proc" "$root/dev/shm" 2>/dev/null; rm -rf "$root"' EXIT
if [[ -n ${CHROOT:-} ]]; then cp -a "$CHROOT/." "$root"; else debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} >/dev/null; fi
mount -t proc proc "$root/proc"
mkdir -p "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp "$@" "$root/tmp/"
in_root() { chroot "$root" env DEBIAN_FRONTEND=noninteractive HOME=/root LC_ALL=C.UTF-8 "$@"; }
listing() { (cd "$root" && find usr etc bin lib opt -xdev | sort); }
in_root apt-get update -qq
# What the packages need stays; so the comparison is with it.
names=$(for deb in "$@"; do dpkg-deb -f "$deb" Package; done)
in_root sh -c 'apt-get install -y -qq --no-install-recommends /tmp/*.deb' >/dev/null
echo "installed: $(in_root capstan --version)"
in_root sh -c 'cd /root && capstan demo --train.max_steps 30' | tail -n 3
in_root sh -c 'cd /root && capstan doctor' | head -n 3
if in_root sh -c 'command -v mpirun' >/dev/null; then
  in_root sh -c 'cd /root && yes "the llama eats grass." | head -n 200 > t.txt && OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 capstan pretrain --data.train_data_path t.txt \
    --model.hidden_size 16 --model.intermediate_size 24 --model.num_hidden_layers 1 --model.num_attention_heads 2 \
    --train.max_steps 2 --train.max_tokens null --train.max_seq_length 32 --train.global_batch_size 4 \
    --train.micro_batch_size 1 --train.lr_warmup_steps 0 --out_dir two' | grep -E "slowest rank|saved to"
fi
listing >"$root/tmp/with"
# shellcheck disable=SC2086  # a name for each package
in_root apt-get purge -y -qq $names >/dev/null
listing >"$root/tmp/without"
if grep -i capstan "$root/tmp/without" | grep -v '^usr/lib/python'; then
  echo "these files are left"
  exit 1
fi
echo "removed without a trace: $(($(wc -l <"$root/tmp/with") - $(wc -l <"$root/tmp/without"))) files gone"
