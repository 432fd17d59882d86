# Four images from one file:
#   docker build --target operator     .   no torch
#   docker build --target trainer      .   CPU torch where locks/torch-cpu.lock is, else PyPI's; of a base image with
#                                          torch, that one
#   docker build --target trainer-hf   .   the trainer (or TRAINER=trainer-cuda) with transformers
#   docker build --target trainer-cuda .   CUDA torch of PyPI; TORCH and TORCH_INDEX choose another (docs/install.md)
# All packages are installed by the hashes of locks/*.lock (`make lock`), except a torch that TORCH or TORCH_INDEX name,
# whose wheels no lock file knows. The digest is of the list of all processors' images of 3.13.15-slim-trixie.
ARG PYTHON_IMAGE=python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285
ARG TORCH_IMAGE=python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285
ARG TRAINER=trainer

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /src
COPY locks/build.lock /locks/
RUN python3 -m venv /build \
 && /build/bin/pip install --no-cache-dir --disable-pip-version-check -q --require-hashes -r /locks/build.lock
COPY pyproject.toml LICENSE README.md ./
COPY api api
COPY operator operator
COPY trainer trainer
COPY cli cli
COPY dashboards dashboards
RUN /build/bin/pip wheel --disable-pip-version-check -q --no-deps --no-build-isolation -w /wheels .

FROM ${PYTHON_IMAGE} AS operator-venv
COPY locks/operator.lock /locks/
RUN python3 -m venv /opt/heterotp \
 && /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q --require-hashes -r /locks/operator.lock
COPY --from=wheel /wheels /wheels
RUN /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q --no-deps /wheels/*.whl

FROM ${PYTHON_IMAGE} AS operator
COPY --from=operator-venv /opt/heterotp /opt/heterotp
ENV PATH=/opt/heterotp/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["python3", "-P", "-m", "heterotp_operator"]

# all that a trainer needs but torch and our own code; a base image with torch has the numpy that belongs to it
FROM ${TORCH_IMAGE} AS trainer-venv
COPY locks/trainer.lock locks/torch*.lock locks/install-torch.sh /locks/
RUN python3 -m venv --system-site-packages /opt/heterotp \
 && if python3 -c 'import numpy' 2>/dev/null; then there='numpy=='; else there='nothing'; fi \
 && awk -v there="$there" '/^[^ ]/ {keep = index($0, there) != 1} keep' /locks/trainer.lock >/locks/absent.lock \
 && /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q --require-hashes -r /locks/absent.lock
ENV PATH=/opt/heterotp/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
ENTRYPOINT ["python3", "-P", "-m", "heterotp_trainer.launch"]

FROM trainer-venv AS trainer
ARG TORCH=
ARG TORCH_INDEX=
RUN python3 -c 'import torch' 2>/dev/null || /locks/install-torch.sh cpu
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --disable-pip-version-check -q --no-deps /wheels/*.whl
USER 65532:65532

FROM trainer-venv AS trainer-cuda
ARG TORCH=
ARG TORCH_INDEX=
RUN /locks/install-torch.sh
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --disable-pip-version-check -q --no-deps /wheels/*.whl
USER 65532:65532

FROM ${TRAINER} AS trainer-hf
USER 0:0
COPY locks/hf.lock /locks/
RUN awk '/^[^ ]/ {keep = !/^numpy==/} keep' /locks/hf.lock >/locks/absent.lock \
 && pip install --no-cache-dir --disable-pip-version-check -q --require-hashes -r /locks/absent.lock
USER 65532:65532
