package checkpoints

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

const (
	manifestFormat  = "glimpse-adapter"
	manifestVersion = 1
)

// manifest is glimpse.json.
type manifest struct {
	Format        string             `json:"format"`
	Version       int                `json:"version"`
	Kind          string             `json:"kind"`
	Rows          int                `json:"rows"`
	HiddenSize    int                `json:"hidden_size"`
	Loss          string             `json:"loss"`
	PoolingKernel int                `json:"pooling_kernel"`
	LayersDiffer  bool               `json:"layers_differ,omitempty"` // modules are not as wide in every layer
	Base          BaseModel          `json:"base_model"`
	Training      json.RawMessage    `json:"training"`
	Data          DataSource         `json:"data"`
	Metrics       map[string]float64 `json:"metrics"`
	Files         map[string]string  `json:"files"` // SHA-256 by name, of every other file
	// Digest is the SHA-256 of this file with the digest's own digits replaced
	// by zeros. It is the last key, so that the digits are at a known place.
	Digest string `json:"digest"`
}

// gates tells that the adapter is gates.
func (m *manifest) gates() bool { return m.Files[gatesModelFile] != "" }

var noDigest = strings.Repeat("0", 2*sha256.Size)

// The bytes around the digest at the end of the file.
const beforeDigest, afterDigest = `"digest": "`, "\"\n}\n"

// encodeJSON renders the manifest and fills in the digest.
func (m manifest) encodeJSON() ([]byte, error) {
	m.Digest = noDigest
	data, err := encodeJSON(m, "  ")
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	hex.Encode(data[len(data)-len(afterDigest)-len(noDigest):], sum[:])
	return data, nil
}

// decodeManifest reads and verifies the manifest.
func decodeManifest(data []byte) (m manifest, err error) {
	if err := decodeVersioned(data, manifestFormat, manifestVersion, &m); err != nil {
		return m, err
	}
	at := len(data) - len(afterDigest) - len(noDigest)
	if at < 0 || !bytes.HasSuffix(data[:at], []byte(beforeDigest)) || string(data[at:]) != m.Digest+afterDigest {
		return m, Corruptf("does not end in a digest: it was changed after the export")
	}
	if got := digestWithout(data, at); got != m.Digest {
		return m, Corruptf("digest: got %s, want %s: it was damaged or changed after the export", got, m.Digest)
	}
	if m.gates() {
		if m.Rows != 0 || m.HiddenSize != 0 {
			return m, Corruptf("%d rows of hidden size %d, want none beside gates", m.Rows, m.HiddenSize)
		}
		return m, nil
	}
	if m.Rows < 1 || m.Rows > MaxRows || m.HiddenSize < 1 || m.HiddenSize > maxHidden {
		return m, Corruptf("%d rows of hidden size %d, want 1 to %d of up to %d", m.Rows, m.HiddenSize, MaxRows, maxHidden)
	}
	return m, nil
}

// digestWithout hashes the parts, one after the other, with the digest that lies
// at offset at in the first replaced by zeros.
func digestWithout(first []byte, at int, more ...[]byte) string {
	h := sha256.New()
	h.Write(first[:at])
	h.Write([]byte(noDigest))
	h.Write(first[at+len(noDigest):])
	for _, part := range more {
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
