package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func readGolden(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// replaced returns a fixture's tokenizer.json with components replaced, and with some settings of
// its model.
func replaced(t *testing.T, base string, parts map[string]json.RawMessage) []byte {
	t.Helper()
	var f map[string]json.RawMessage
	readGolden(t, base+".json", &f)
	for name, part := range parts {
		if name == "model" {
			model := map[string]json.RawMessage{}
			if err := errors.Join(json.Unmarshal(f[name], &model), json.Unmarshal(part, &model)); err != nil {
				t.Fatal(err)
			}
			part, _ = json.Marshal(model)
		}
		f[name] = part
	}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestGoldenPatterns compares pre-tokens, ids and decoded texts with the reference's
// (lab/golden/tokenizer_patterns.py), by a checksum for each text.
func TestGoldenPatterns(t *testing.T) {
	var golden struct {
		Texts      []string
		Tokenizers map[string]struct {
			Base  string
			Parts map[string]json.RawMessage
			Sums  string
		}
	}
	readGolden(t, "patterns.json", &golden)
	if len(golden.Texts) < 2000 || len(golden.Tokenizers) < 30 {
		t.Fatalf("%d texts for %d tokenizers, want at least 2000 for 30", len(golden.Texts), len(golden.Tokenizers))
	}
	for name, g := range golden.Tokenizers {
		t.Run(name, func(t *testing.T) {
			tok, err := Load(replaced(t, g.Base, g.Parts), nil)
			if err != nil {
				t.Fatal(err)
			}
			sums, err := base64.StdEncoding.DecodeString(g.Sums)
			if err != nil || len(sums) != 3*len(golden.Texts) {
				t.Fatalf("%d bytes of checksums for %d texts, %v", len(sums), len(golden.Texts), err)
			}
			wrong := 0
			for i, text := range golden.Texts {
				got := describe(t, tok, text)
				want := sums[3*i : 3*i+3]
				if sum := binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(got))); !bytes.Equal(sum[:3], want) {
					if wrong++; wrong <= 5 {
						t.Errorf("text %d %q: got %q, whose checksum is not the reference's", i, text, got)
					}
				}
			}
			if wrong > 0 {
				t.Errorf("%d of %d texts differ", wrong, len(golden.Texts))
			}
		})
	}
}

// describe is what the checksums are of: the pre-tokens of the text as a whole, its ids
// and the text decoded from them.
func describe(t *testing.T, tok *Tokenizer, text string) string {
	t.Helper()
	normalized, err := tok.normalize.normalize(text, growth(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	var pieces []string
	if normalized != "" {
		if err := tok.split.split(piece{text: normalized}, func(p piece) error {
			if m, ok := tok.model.(*bpe); ok && m.byteLevel {
				var b strings.Builder
				for i := range len(p.text) {
					b.WriteRune(byteRunes[p.text[i]])
				}
				p.text = b.String()
			}
			pieces = append(pieces, p.text)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	ids, err := tok.Encode(text, false)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := tok.Decode(ids, false)
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
	return strings.Join(pieces, "\x00") + "\x01" + list + "\x01" + decoded
}

// TestGoldenFolders compares the ids of folders whose tokens and settings are not all
// in tokenizer.json with those of transformers.
func TestGoldenFolders(t *testing.T) {
	var golden struct {
		Texts   []string
		Folders map[string]struct {
			Base    string
			Files   map[string]json.RawMessage
			IDs     [][]int32
			Skipped []string
		}
	}
	readGolden(t, "folders.json", &golden)
	if len(golden.Folders) < 10 {
		t.Fatalf("%d folders, want at least 10", len(golden.Folders))
	}
	for name, g := range golden.Folders {
		t.Run(name, func(t *testing.T) {
			dir := fstest.MapFS{"tokenizer.json": {Data: replaced(t, g.Base, nil)}}
			for file, content := range g.Files {
				dir[file] = &fstest.MapFile{Data: content}
			}
			tok, err := LoadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for i, text := range golden.Texts {
				got, err := tok.Encode(text, false)
				if err != nil || !slices.Equal(got, g.IDs[i]) {
					t.Errorf("%q: got %v, %v; want %v", text, got, err, g.IDs[i])
				}
				if got, err := tok.Decode(g.IDs[i], true); err != nil || got != g.Skipped[i] {
					t.Errorf("%q: decoded %q, %v; want %q", text, got, err, g.Skipped[i])
				}
			}
		})
	}
}
