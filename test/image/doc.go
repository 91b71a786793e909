// Package image reads the image that `make image` makes, as registries and container engines do: by digest, from the
// index down to the files of its layer. Its test holds what it reads against the Dockerfile, since nobody builds that one
// here.
package image
