# Programs of other projects, built from their Go modules in go/FOLDER, and images of them; to be sourced after lib.sh.
# FOLDER has a go.mod that pins the versions; nothing is built anew until that changes.

module_field() { (cd "$HERE/go/$1" && go list -m -f "{{.$3}}" "$2"); } # FOLDER MODULE FIELD
pinned() { sha256sum <"$HERE/go/$1/go.mod" | cut -c1-12; }             # FOLDER
program_image() { echo "heterotp/$2:$(pinned "$1")"; }                 # FOLDER NAME

build_program() { # FOLDER NAME PACKAGE [LDFLAGS]
  [ -x "$BIN/$2" ] && [ "$(cat "$BIN/.built-$2" 2>/dev/null)" = "$(pinned "$1")" ] && return
  command -v go >/dev/null || die "needs Go 1.26 or later in PATH"
  (
    cd "$HERE/go/$1"
    export CGO_ENABLED=0 GOFLAGS=-buildvcs=false\ -trimpath
    timed "go mod download $1" nice go mod download
    timed "build $2" nice go build -ldflags "-s -w ${4:-}" -o "$BIN/$2" "$3"
  )
  pinned "$1" >"$BIN/.built-$2"
}

build_image() { # FOLDER NAME PATH: an image of this one program, at this path in it
  local folder image; image=$(program_image "$1" "$2")
  docker image inspect "$image" >/dev/null 2>&1 && return
  folder=$(mktemp -d)
  cp "$BIN/$2" "$folder/program"
  printf 'FROM scratch\nCOPY program %s\nUSER 65532:65532\nENTRYPOINT ["%s"]\n' "$3" "$3" >"$folder/Dockerfile"
  timed "image $2" docker build -q -t "$image" "$folder" >/dev/null
  rm -rf "$folder"
}

load_image() { # FOLDER NAME: into the first worker, on which it is to run
  timed "load $2" kind load docker-image --name "$CLUSTER_NAME" --nodes "$CLUSTER_NAME-worker" "$(program_image "$1" "$2")" >&2
}
