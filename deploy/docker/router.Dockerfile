# One image, two uses: `homeport serve` (the default) and `homeport emulate`.
# The context is the repository's root: docker build -f deploy/docker/router.Dockerfile .

FROM python:3.11.15-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements/ requirements/
# The build backend and what it needs, with the hashes of the development lock.
RUN awk '/^[a-z]/ { keep = /^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/ } keep' \
      requirements/dev.txt > requirements/build.txt \
    && pip install --require-hashes -r requirements/build.txt \
    && python -m venv --without-pip /opt/homeport \
    && pip --python /opt/homeport/bin/python install --require-hashes -r requirements/serve.txt
COPY pyproject.toml README.md LICENSE ./
COPY hashing/ hashing/
COPY router/ router/
COPY replica/ replica/
COPY sim/ sim/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
    && pip --python /opt/homeport/bin/python install --no-deps /dist/*.whl \
    && /opt/homeport/bin/homeport --version

FROM python:3.11.15-slim-bookworm
# PYTHONSAFEPATH keeps the working folder off the import path: the packages have common names.
ENV PATH=/opt/homeport/bin:$PATH \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOMEPORT_HOST=0.0.0.0
RUN useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin homeport
COPY --from=build /opt/homeport /opt/homeport
USER 10001:10001
EXPOSE 30000 30080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('HOMEPORT_ADMIN_PORT', '30080') + '/healthz', timeout=2)"]
ENTRYPOINT ["homeport"]
CMD ["serve"]
