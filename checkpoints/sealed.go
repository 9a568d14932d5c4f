package checkpoints

import (
	"bytes"
	"fmt"
	"io"
	"slices"
)

// sealedStart is how the header of a sealed file begins: keys are written in order.
const sealedStart = `{"` + metadataKey + `":{"` + sealKey + `":"`

const sealKey = "digest"

// WriteSealed is [WriteSafetensors] of a file that [Safetensors.VerifySeal] holds against a SHA-256 over all of it, which is in the
// metadata under "digest". The other keys come after that in order.
func WriteSealed(w io.Writer, tensors []TensorView, metadata map[string]string) error {
	sealed := map[string]string{sealKey: noDigest}
	for key, value := range metadata {
		if key <= sealKey {
			return fmt.Errorf("metadata %q: want a key after %q", key, sealKey)
		}
		sealed[key] = value
	}
	tensors = slices.Clone(tensors)
	header, err := renderHeader(tensors, sealed)
	if err != nil {
		return err
	}
	data := make([][]byte, len(tensors))
	for i, t := range tensors {
		data[i] = t.Data
	}
	at := 8 + len(sealedStart)
	copy(header[at:], digestWithout(header, at, data...))
	return writeParts(w, header, tensors)
}

// VerifySeal is ErrCorrupt unless every bit of the file is as WriteSealed has written it.
func (s *Safetensors) VerifySeal() error {
	digest := s.metadata[sealKey]
	at := 8 + len(sealedStart)
	if !isSHA256(digest) || len(s.file) < at+len(digest) || !bytes.Equal(s.file[8:at+len(digest)], []byte(sealedStart+digest)) {
		return Corruptf("does not start with a digest")
	}
	if got := digestWithout(s.file, at); got != digest {
		return Corruptf("digest: got %s, want %s: the file is damaged", got, digest)
	}
	return nil
}
