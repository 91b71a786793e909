// Command mkimage packs files into an OCI image of one layer, as a tar file that load-image.sh can load:
//
//	mkimage -tag localhost/echo:1 -out echo.tar /echo=./bin/echo
//
// Each argument adds one thing to the image:
//
//	/DEST=FILE     a copy of FILE, executable if FILE is
//	/DEST->TARGET  a symbolic link
//	/DEST/         an empty folder, writable for everyone
//
// The entry point is the first file, unless -entrypoint names another. The same files give the same image, byte for
// byte, whenever and wherever they lie.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"os"
	"runtime"
	"strings"
)

type object = map[string]any

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("mkimage: ")
	tag := flag.String("tag", "", "full image name with its tag, such as localhost/echo:1")
	out := flag.String("out", "", "tar file to write")
	user := flag.String("user", "65532:65532", "user and group that the image runs as")
	entrypoint := flag.String("entrypoint", "", "the program that runs; default: the first file")
	flag.Parse()
	if *tag == "" || *out == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	l := newLayer()
	for _, spec := range flag.Args() {
		if err := l.add(spec); err != nil {
			log.Fatal(err)
		}
	}
	if *entrypoint == "" {
		*entrypoint = l.first
	}
	if err := write(*tag, *out, *user, *entrypoint, l); err != nil {
		log.Fatal(err)
	}
}

// layout is an OCI layout: its files, in the order in which they were added.
type layout struct{ tape }

// blob adds contents under the name that their digest gives them.
func (o *layout) blob(mediaType string, data []byte) descriptor {
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	o.file("blobs/sha256/"+digest, data, 0o644)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(data)}
}

// write writes the image of one layer.
func write(tag, out, user, entrypoint string, l *layer) error {
	contents, err := l.close()
	if err != nil {
		return err
	}
	o := &layout{newTape()}
	o.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644)
	layerBlob := o.blob("application/vnd.oci.image.layer.v1.tar", contents)
	config := o.blob("application/vnd.oci.image.config.v1+json", encode(object{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": object{
			"User": user, "Entrypoint": []string{entrypoint}, "Env": []string{"PATH=/bin:/usr/bin:/"}, "WorkingDir": "/",
		},
		"rootfs": object{"type": "layers", "diff_ids": []string{layerBlob.Digest}},
	}))
	manifest := o.blob("application/vnd.oci.image.manifest.v1+json", encode(object{
		"schemaVersion": 2,
		"mediaType":     "application/vnd.oci.image.manifest.v1+json",
		"config":        config,
		"layers":        []descriptor{layerBlob},
	}))
	manifest.Annotations = map[string]string{
		"io.containerd.image.name":          tag,
		"org.opencontainers.image.ref.name": tag[strings.LastIndexByte(tag, ':')+1:],
	}
	o.file("index.json", encode(object{"schemaVersion": 2, "manifests": []descriptor{manifest}}), 0o644)
	if contents, err = o.close(); err != nil {
		return err
	}
	return replace(out, contents)
}

// replace writes a file that is whole or not there.
func replace(name string, data []byte) error {
	if err := os.WriteFile(name+".new", data, 0o644); err != nil {
		return errors.Join(err, os.Remove(name+".new"))
	}
	return os.Rename(name+".new", name)
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // only maps, lists and strings go in
	}
	return data
}
