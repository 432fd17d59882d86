# Three images from one file:
#   docker build --target operator     .   no torch
#   docker build --target trainer      .   CPU torch; with a base image that has torch already, that one is used
#   docker build --target trainer-cuda .   CUDA torch; TORCH and TORCH_INDEX choose the wheel (docs/install.md)
ARG PYTHON_IMAGE=python:3.13-slim-trixie
ARG TORCH_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS operator-build
WORKDIR /src
COPY requirements.lock ./
RUN python3 -m venv /opt/heterotp && grep -oE '^[A-Za-z0-9._-]+==[^\]+' requirements.lock >/tmp/pins \
 && /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q -c /tmp/pins \
    kopf kubernetes aiohttp prometheus-client pydantic click pyyaml hatchling
COPY pyproject.toml LICENSE ./
COPY api api
COPY operator operator
COPY trainer trainer
COPY cli cli
# the package's metadata names the README; an image has no reader for it
RUN touch README.md \
 && /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q --no-deps --no-build-isolation . \
 && /opt/heterotp/bin/pip uninstall -q -y hatchling

FROM ${PYTHON_IMAGE} AS operator
COPY --from=operator-build /opt/heterotp /opt/heterotp
ENV PATH=/opt/heterotp/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["python3", "-m", "heterotp_operator"]

FROM ${TORCH_IMAGE} AS trainer
ARG TORCH=torch
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /src
COPY requirements.lock ./
# torch and numpy come with the base image or with the index; the other pins hold for both
RUN python3 -m venv --system-site-packages /opt/heterotp \
 && grep -oE '^[A-Za-z0-9._-]+==[^\]+' requirements.lock | grep -vE '^(torch|numpy|triton|nvidia|cuda)' >/tmp/pins \
 && (/opt/heterotp/bin/python3 -c 'import torch' 2>/dev/null \
     || /opt/heterotp/bin/pip install --no-cache-dir -q "$TORCH" numpy --index-url "$TORCH_INDEX") \
 && /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q -c /tmp/pins \
    scikit-learn aiohttp prometheus-client pydantic click pyyaml hatchling
COPY pyproject.toml LICENSE ./
COPY api api
COPY operator operator
COPY trainer trainer
COPY cli cli
# the package's metadata names the README; an image has no reader for it
RUN touch README.md \
 && /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q --no-deps --no-build-isolation .
ENV PATH=/opt/heterotp/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
USER 65532:65532
ENTRYPOINT ["python3", "-m", "heterotp_trainer.launch"]

FROM ${TORCH_IMAGE} AS trainer-cuda
ARG TORCH=torch
ARG TORCH_INDEX=
WORKDIR /src
COPY requirements.lock ./
RUN python3 -m venv /opt/heterotp \
 && grep -oE '^[A-Za-z0-9._-]+==[^\]+' requirements.lock | grep -vE '^(torch|numpy|triton|nvidia|cuda)' >/tmp/pins \
 && /opt/heterotp/bin/pip install --no-cache-dir -q "$TORCH" numpy ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} \
 && /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q -c /tmp/pins \
    scikit-learn aiohttp prometheus-client pydantic click pyyaml hatchling
COPY pyproject.toml LICENSE ./
COPY api api
COPY operator operator
COPY trainer trainer
COPY cli cli
# the package's metadata names the README; an image has no reader for it
RUN touch README.md \
 && /opt/heterotp/bin/pip install --no-cache-dir --disable-pip-version-check -q --no-deps --no-build-isolation .
ENV PATH=/opt/heterotp/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
USER 65532:65532
ENTRYPOINT ["python3", "-m", "heterotp_trainer.launch"]
