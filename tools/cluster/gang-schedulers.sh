#!/bin/bash
# The gang schedulers and their controllers, of their Go modules: the coscheduling plugin's (scheduler-plugins) and
# Volcano's. Nothing is pulled. Only `make test-gangs` needs them.
#   gang-schedulers.sh build     build all four programs (with Go; 6 minutes without caches), copy the CRDs
#   gang-schedulers.sh files     print the folder of their CRDs and of Volcano's configuration
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$HERE/modules.sh"
plugins=sigs.k8s.io/scheduler-plugins
volcano=volcano.sh/volcano
files=$CLUSTER_DIR/gang-schedulers

copy_files() { # those of the versions that were built
  local folder; folder=$(module_field schedulers "$plugins" Dir)
  rm -rf "$files"
  mkdir -p "$files"/{coscheduling,volcano}
  cp "$folder/config/crd/bases/scheduling.x-k8s.io_podgroups.yaml" "$folder/config/crd/bases/scheduling.x-k8s.io_elasticquotas.yaml" "$files/coscheduling/"
  folder=$(module_field schedulers "$volcano" Dir)/installer/helm/chart/volcano
  cp "$folder"/crd/bases/*.yaml "$folder"/charts/jobflow/crd/bases/*.yaml "$files/volcano/"
  cp "$folder/config/volcano-scheduler.conf" "$files/"
  chmod -R u+w "$files" # the module cache is read-only
}

build() {
  build_program schedulers coscheduling-scheduler "$plugins/cmd/scheduler"
  build_program schedulers coscheduling-controller "$plugins/cmd/controller"
  build_program schedulers volcano-scheduler "$volcano/cmd/scheduler"
  build_program schedulers volcano-controller "$volcano/cmd/controller-manager"
  copy_files
}

case ${1:-} in
build) build ;;
files) echo "$files" ;;
*) die "usage: $0 build|files" ;;
esac
