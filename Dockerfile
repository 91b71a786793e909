# Quorate's image: static programs and nothing else, no shell, not run as root. Which of them runs, `command` says.
#
# `make image` makes the same contents without a container engine; test/image holds the two together.
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
RUN make programs

FROM scratch
COPY --from=build /src/dist/programs/quotanode /quotanode
COPY --from=build /src/dist/programs/gateway /gateway
COPY --from=build /src/dist/programs/operator /operator
COPY --from=build /src/dist/programs/quotactl /quotactl
COPY --from=build /src/LICENSE /LICENSE
COPY --from=build /src/NOTICE /NOTICE
USER 65532:65532
ENTRYPOINT ["/quotanode"]
