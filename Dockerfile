# Four images from one file:
#   docker build --target operator     .   no torch
#   docker build --target trainer      .   CPU torch; with a base image that has torch already, that one is used
#   docker build --target trainer-hf   .   the trainer (or TRAINER=trainer-cuda) with transformers
#   docker build --target trainer-cuda .   CUDA torch; TORCH and TORCH_INDEX choose the wheel (docs/install.md)
# All packages are installed by the hashes of locks/*.lock (`make lock`), except a torch from an index other than PyPI,
# whose wheels no lock file knows. Give base images by digest: --build-arg PYTHON_IMAGE=python@sha256:...
ARG PYTHON_IMAGE=python:3.13-slim-trixie
ARG TORCH_IMAGE=python:3.13-slim-trixie
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
COPY locks/trainer.lock locks/torch.lock /locks/
RUN python3 -m venv --system-site-packages /opt/heterotp \
 && if python3 -c 'import numpy' 2>/dev/null; then there='numpy=='; else there='nothing'; fi \
 && awk -v there="$there" '/^[^ ]/ {keep = index($0, there) != 1} keep' /locks/trainer.lock >/locks/absent.lock \
 && /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q --require-hashes -r /locks/absent.lock
ENV PATH=/opt/heterotp/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
ENTRYPOINT ["python3", "-P", "-m", "heterotp_trainer.launch"]

FROM trainer-venv AS trainer
ARG TORCH=
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python3 -c 'import torch' 2>/dev/null || { \
    awk '/^[^ ]/ {keep = !/^(torch|triton|nvidia-|cuda-)/} keep' /locks/torch.lock >/locks/needed.lock \
 && pip install --no-cache-dir --disable-pip-version-check -q --require-hashes -r /locks/needed.lock \
 && pip install --no-cache-dir --disable-pip-version-check -q \
    "${TORCH:-$(grep -oE '^torch==[0-9.]+' /locks/torch.lock)}" --index-url "$TORCH_INDEX"; }
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --disable-pip-version-check -q --no-deps /wheels/*.whl
USER 65532:65532

FROM trainer-venv AS trainer-cuda
ARG TORCH=
ARG TORCH_INDEX=
RUN if [ -z "$TORCH$TORCH_INDEX" ]; then \
    pip install --no-cache-dir --disable-pip-version-check -q --require-hashes -r /locks/torch.lock; \
    else pip install --no-cache-dir --disable-pip-version-check -q \
    "${TORCH:-$(grep -oE '^torch==[0-9.]+' /locks/torch.lock)}" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}; fi
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --disable-pip-version-check -q --no-deps /wheels/*.whl
USER 65532:65532

FROM ${TRAINER} AS trainer-hf
USER 0:0
COPY locks/hf.lock /locks/
RUN awk '/^[^ ]/ {keep = !/^numpy==/} keep' /locks/hf.lock >/locks/absent.lock \
 && pip install --no-cache-dir --disable-pip-version-check -q --require-hashes -r /locks/absent.lock
USER 65532:65532
