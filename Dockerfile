# The `serializer` command in a container. `.ci/image` builds the program, fills the folder `root`, and builds this.
FROM scratch
COPY root/ /
COPY --chown=65532:65532 work/ /work/
COPY --chown=65532:65532 work/ /data/
USER 65532:65532
WORKDIR /work
EXPOSE 9000 9001
ENTRYPOINT ["/serializer"]
CMD ["local", "--listen", "0.0.0.0"]
