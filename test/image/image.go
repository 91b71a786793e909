package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// File is one file of the image.
type File struct {
	// Data is what it holds.
	Data []byte
	// Mode is who may read and run it.
	Mode int64
	// Owner and Group are whose it is, by number.
	Owner, Group int
}

// Image is an image of one layer.
type Image struct {
	// Name is what it is called where it is loaded.
	Name string
	// Digest names its manifest, and so everything in it.
	Digest string
	// User is who runs its programs.
	User string
	// Entrypoint is what runs unless a container says otherwise.
	Entrypoint []string
	// Files are its files, by path; anything but a plain file in it is an error.
	Files map[string]File
}

type descriptor struct {
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations"`
}

// Read reads an OCI layout in a tar file.
func Read(path string) (*Image, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	outer, err := untar(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	i, err := assemble(outer)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return i, nil
}

func assemble(outer map[string]File) (*Image, error) {
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(outer["index.json"].Data, &index); err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	if len(index.Manifests) != 1 {
		return nil, fmt.Errorf("index.json names %d manifests, want 1", len(index.Manifests))
	}
	top := index.Manifests[0]
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	var config struct {
		Config struct {
			User       string
			Entrypoint []string
		}
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	err := errors.Join(decode(outer, top, &manifest), decode(outer, manifest.Config, &config))
	if err != nil {
		return nil, err
	}
	if len(manifest.Layers) != 1 || len(config.Rootfs.DiffIDs) != 1 || config.Rootfs.DiffIDs[0] != manifest.Layers[0].Digest {
		return nil, fmt.Errorf("layers %v, in the configuration %v: want the same one", manifest.Layers, config.Rootfs.DiffIDs)
	}
	layer, err := blob(outer, manifest.Layers[0])
	if err != nil {
		return nil, err
	}
	files, err := untar(layer)
	return &Image{
		Name: top.Annotations["io.containerd.image.name"], Digest: top.Digest,
		User: config.Config.User, Entrypoint: config.Config.Entrypoint, Files: files,
	}, err
}

func decode(outer map[string]File, d descriptor, into any) error {
	data, err := blob(outer, d)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// blob is what a descriptor names, if it is that.
func blob(outer map[string]File, d descriptor) ([]byte, error) {
	digest, ok := strings.CutPrefix(d.Digest, "sha256:")
	data := outer["blobs/sha256/"+digest].Data
	sum := sha256.Sum256(data)
	if !ok || hex.EncodeToString(sum[:]) != digest || len(data) != d.Size {
		return nil, fmt.Errorf("blob %s of %d bytes is not what it is called", d.Digest, d.Size)
	}
	return data, nil
}

func untar(data []byte) (map[string]File, error) {
	files := map[string]File{}
	for in := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(in)
		if err != nil {
			return nil, err
		}
		if _, twice := files[h.Name]; twice || h.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("entry %s of type %c, twice %t", h.Name, h.Typeflag, twice)
		}
		files[h.Name] = File{Data: text, Mode: h.Mode, Owner: h.Uid, Group: h.Gid}
	}
}
