package datasets

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"glimpse/internal/regularfile"
)

// Excerpts are parts of documents, drawn by a seed: contexts without any question.
type Excerpts struct {
	documents         []string
	bytes             int // of all documents
	seed              uint64
	rng               *rand.Rand // of Next
	encode            func(text string) ([]int32, error)
	shortest, longest int // tokens
}

// excerpts tells draws of excerpts from others by the same seed.
const excerpts = 0x6578636572707473

// maxDocument bounds a text file, in bytes.
const maxDocument = 256 << 20

// OpenExcerpts reads text files, and of folders all files in UTF-8 that end in .txt, .md or .rst. encode gives a text's token ids.
func OpenExcerpts(paths []string, shortest, longest int, seed uint64, encode func(text string) ([]int32, error)) (*Excerpts, error) {
	e := &Excerpts{encode: encode, shortest: shortest, longest: longest, seed: seed, rng: rand.New(rand.NewPCG(seed, excerpts))}
	for _, path := range paths {
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			ext := strings.ToLower(filepath.Ext(file))
			if file != path && ext != ".txt" && ext != ".md" && ext != ".rst" {
				return nil
			}
			raw, err := regularfile.Read(file, maxDocument)
			if err != nil {
				return err
			}
			if !utf8.Valid(raw) || bytes.IndexByte(raw, 0) >= 0 {
				if file != path {
					return nil
				}
				return fmt.Errorf("%s: want a text in UTF-8", file)
			}
			if text := strings.TrimSpace(string(raw)); text != "" {
				e.documents, e.bytes = append(e.documents, text), e.bytes+len(text)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("texts: %w", err)
		}
	}
	if len(e.documents) == 0 {
		return nil, errors.New("texts: got none, want files of text, or folders with .txt, .md or .rst files")
	}
	return e, nil
}

// HoldOut splits off the last of the documents, with the given share of all text, at least one. The last one that stays is cut where that is
// needed.
func (e *Excerpts) HoldOut(share float64) (rest, held *Excerpts) {
	first, second := *e, *e
	first.documents, second.documents = nil, nil
	first.bytes = int((1 - share) * float64(e.bytes))
	left := first.bytes
	for _, document := range e.documents {
		cut := min(left, len(document))
		for cut > 0 && cut < len(document) && !utf8.RuneStart(document[cut]) {
			cut--
		}
		if cut > 0 {
			first.documents = append(first.documents, document[:cut])
		}
		if cut < len(document) {
			second.documents = append(second.documents, document[cut:])
		}
		left = max(0, left-len(document))
	}
	for _, of := range []*Excerpts{&first, &second} {
		of.bytes = 0
		for _, document := range of.documents {
			of.bytes += len(document)
		}
	}
	return &first, &second
}

// Next are the token ids of one more excerpt. It begins a line or a sentence and has as many tokens as it may. Places are equally
// likely in all documents, and drawn again where too little follows.
func (e *Excerpts) Next() ([]int32, error) { return e.draw(e.rng) }

// At is an excerpt as Next draws them, which depends on the seed and i alone.
func (e *Excerpts) At(i int) ([]int32, error) {
	return e.draw(rand.New(rand.NewPCG(e.seed, excerpts^(uint64(i)+1)<<20)))
}

func (e *Excerpts) draw(rng *rand.Rand) ([]int32, error) {
	for range 1000 {
		if e.bytes == 0 {
			break
		}
		at, document := rng.IntN(e.bytes), ""
		for _, document = range e.documents {
			if at < len(document) {
				break
			}
			at -= len(document)
		}
		length := e.shortest
		if e.longest > e.shortest {
			length += rng.IntN(e.longest - e.shortest + 1)
		}
		text := document[at:]
		if at > 0 {
			begins := strings.IndexAny(text, "\n.")
			if begins < 0 {
				continue
			}
			text = strings.TrimLeft(text[begins+1:], " \n.\r\t")
		}
		if most := 12 * length; len(text) > most { // which is enough, and ends with a word
			text = strings.ToValidUTF8(text[:most], "")
			text = text[:max(0, strings.LastIndexAny(text, " \n"))]
		}
		ids, err := e.encode(text)
		if err != nil {
			return nil, err
		}
		if len(ids) >= length {
			return ids[:length], nil
		}
	}
	return nil, fmt.Errorf("texts: no document has %d tokens behind many of its places; want longer texts, or shorter excerpts", e.shortest)
}
