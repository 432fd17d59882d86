# Three images from one file:
#   docker build --target operator     .   no torch
#   docker build --target trainer      .   CPU torch; with a base image that has torch already, that one is used
#   docker build --target trainer-cuda .   CUDA torch; TORCH and TORCH_INDEX choose the wheel (docs/install.md)
ARG PYTHON_IMAGE=python:3.13-slim-trixie
ARG TORCH_IMAGE=python:3.13-slim-trixie

# the lock file's versions, as constraints; torch and numpy come with the base image or with an index
FROM ${PYTHON_IMAGE} AS pins
COPY requirements.lock /
RUN grep -oE '^[A-Za-z0-9._-]+==[^\]+' /requirements.lock | grep -vE '^(torch|numpy|triton|nvidia|cuda)' >/pins \
 && grep -oE '^torch==[0-9.]+' /requirements.lock >/torch

FROM pins AS wheel
WORKDIR /src
RUN python3 -m venv /build && /build/bin/pip install --no-cache-dir --disable-pip-version-check -q -c /pins hatchling
COPY pyproject.toml LICENSE README.md ./
COPY api api
COPY operator operator
COPY trainer trainer
COPY cli cli
COPY dashboards dashboards
RUN /build/bin/pip wheel --disable-pip-version-check -q --no-deps --no-build-isolation -w /wheels .

FROM ${PYTHON_IMAGE} AS operator-venv
COPY --from=pins /pins /pins
RUN python3 -m venv /opt/heterotp \
 && /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q -c /pins \
    kopf kubernetes aiohttp prometheus-client pydantic click pyyaml
COPY --from=wheel /wheels /wheels
RUN /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q --no-deps /wheels/*.whl

FROM ${PYTHON_IMAGE} AS operator
COPY --from=operator-venv /opt/heterotp /opt/heterotp
ENV PATH=/opt/heterotp/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["python3", "-P", "-m", "heterotp_operator"]

# all that a trainer needs but torch and our own code
FROM ${TORCH_IMAGE} AS trainer-venv
COPY --from=pins /pins /torch /
RUN python3 -m venv --system-site-packages /opt/heterotp \
 && /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q -c /pins \
    scikit-learn aiohttp prometheus-client pydantic click pyyaml
ENV PATH=/opt/heterotp/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
ENTRYPOINT ["python3", "-P", "-m", "heterotp_trainer.launch"]

FROM trainer-venv AS trainer
ARG TORCH=
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python3 -c 'import torch' 2>/dev/null \
 || pip install --no-cache-dir --disable-pip-version-check -q "${TORCH:-$(cat /torch)}" --index-url "$TORCH_INDEX"
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --disable-pip-version-check -q --no-deps /wheels/*.whl
USER 65532:65532

FROM trainer-venv AS trainer-cuda
ARG TORCH=
ARG TORCH_INDEX=
RUN pip install --no-cache-dir --disable-pip-version-check -q "${TORCH:-$(cat /torch)}" \
    ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --disable-pip-version-check -q --no-deps /wheels/*.whl
USER 65532:65532
