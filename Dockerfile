# What `make demo` installs, in a container for CPUs. See docs/install.md.
FROM python:3.12-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends make libegl1 libgl1 libgl1-mesa-dri libosmesa6 && rm -rf /var/lib/apt/lists/*
WORKDIR /cta
COPY . .
RUN make .venv/.small
ENTRYPOINT ["/cta/.venv/bin/cta"]
CMD ["--help"]
