# The command in an image that has nothing else: `docker build --tag rallypoint .`. It runs the server and the commands of
# an operator. An image with a training program takes it from there: `COPY --from=rallypoint /rallypoint /usr/local/bin/`.
FROM rust:1.95-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
WORKDIR /src
COPY . .
RUN cp "$(scripts/binary static)" /rallypoint

FROM scratch
COPY --from=build /rallypoint /rallypoint
ENTRYPOINT ["/rallypoint"]
