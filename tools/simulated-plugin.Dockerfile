# The simulated device plugin as an image. Build from the top of this repository:
#   docker build -f tools/simulated-plugin.Dockerfile -t simulated-device-plugin .
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY protos protos
COPY checkpoint checkpoint
COPY podresources podresources
COPY devicemanager devicemanager
RUN python -m venv /plugin && /plugin/bin/pip install --no-cache-dir .

FROM python:3.12-slim
COPY --from=build /plugin /plugin
# As root: the kubelet's plugin directory belongs to root and is closed to others.
USER 0
ENTRYPOINT ["/plugin/bin/devicemanager", "simulate"]
