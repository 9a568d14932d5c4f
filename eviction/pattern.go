package eviction

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"glimpse/internal/atomicfile"
	"glimpse/internal/modelfile"
	"glimpse/internal/regularfile"
	"glimpse/model"
)

// Pattern tells how much a model's KV heads retrieve from far back, in the format
// that DuoAttention publishes: a folder with full_attention_heads.tsv, one line
// per layer and one number per KV head, and sink_size and
// recent_size of config.json.
type Pattern struct {
	Heads        [][]float64 // [layer][kvHead], 0 (streaming) to 1 (retrieval)
	Sink, Recent int         // of the streaming heads when the numbers were found
	Source       string      // model that the numbers are of, as far as the folder says
}

// The files of a pattern folder.
const (
	patternHeads  = "full_attention_heads.tsv"
	patternConfig = "config.json"
)

// patternFields are what this program reads and writes of a pattern's config.json;
// published ones hold the settings of their search besides.
type patternFields struct {
	Model  string `json:"model_name"`
	Sink   *int   `json:"sink_size"`
	Recent *int   `json:"recent_size"`
}

// maxPattern bounds the files of a pattern.
const maxPattern = 1 << 22

// ReadPattern reads a pattern folder. Numbers outside 0 to 1, which an optimiser
// leaves behind, are clipped, as DuoAttention does; anything that is no number, and
// lines of different lengths, are errors.
func ReadPattern(folder fs.FS) (*Pattern, error) {
	raw, err := modelfile.ReadJSON(folder, patternConfig, maxPattern)
	if err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	var c patternFields
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("pattern: %s: %w", patternConfig, err)
	}
	p := &Pattern{Source: c.Model}
	for _, f := range []struct {
		key   string
		value *int
		to    *int
	}{{"sink_size", c.Sink, &p.Sink}, {"recent_size", c.Recent, &p.Recent}} {
		if f.value == nil {
			return nil, fmt.Errorf("pattern: %s: %s: missing", patternConfig, f.key)
		}
		if *f.value < 0 {
			return nil, fmt.Errorf("pattern: %s: %s: got %d, want at least 0", patternConfig, f.key, *f.value)
		}
		*f.to = *f.value
	}
	if raw, err = regularfile.ReadFS(folder, patternHeads, maxPattern); err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	for i, line := range strings.Split(strings.TrimRight(string(raw), "\r\n"), "\n") {
		var heads []float64
		for field := range strings.SplitSeq(strings.TrimRight(line, "\r"), "\t") {
			v, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
			if err != nil || v-v != 0 {
				return nil, fmt.Errorf("pattern: %s: line %d: got %.40q, want tab-separated numbers", patternHeads, i+1, field)
			}
			heads = append(heads, min(max(v, 0), 1))
		}
		if i > 0 && len(heads) != len(p.Heads[0]) {
			return nil, fmt.Errorf("pattern: %s: line %d: %d heads, want %d as in line 1", patternHeads, i+1, len(heads), len(p.Heads[0]))
		}
		p.Heads = append(p.Heads, heads)
	}
	return p, nil
}

// Write makes the folder at path. One that exists is an error, unless it is to be replaced and
// has a pattern.
func (p *Pattern) Write(path string, replace bool) error {
	if _, err := os.Stat(path); replace && err == nil {
		if _, err := ReadPattern(os.DirFS(path)); err != nil {
			return fmt.Errorf("write pattern: only a folder with a pattern is replaced: %w", err)
		}
	}
	dir, err := atomicfile.CreateDir(path, replace)
	if err != nil {
		return fmt.Errorf("write pattern: %w", err)
	}
	defer dir.Abort()
	var heads bytes.Buffer
	for _, layer := range p.Heads {
		for h, v := range layer {
			if h > 0 {
				heads.WriteByte('\t')
			}
			fmt.Fprintf(&heads, "%.18e", v) // as numpy writes it
		}
		heads.WriteByte('\n')
	}
	config, err := json.Marshal(patternFields{p.Source, &p.Sink, &p.Recent})
	if err != nil {
		return fmt.Errorf("write pattern: %w", err)
	}
	for name, data := range map[string][]byte{patternHeads: heads.Bytes(), patternConfig: append(config, '\n')} {
		if err := os.WriteFile(filepath.Join(dir.Path(), name), data, 0o644); err != nil {
			return fmt.Errorf("write pattern: %w", err)
		}
	}
	if err := dir.Commit(); err != nil {
		return fmt.Errorf("write pattern: %w", err)
	}
	return nil
}

// checkModel is an error unless the pattern has a number for every KV head of m.
func (p *Pattern) checkModel(m *model.Model) error {
	if layers, heads := m.Config.Layers, m.Config.KVHeads; len(p.Heads) != layers || len(p.Heads[0]) != heads {
		return fmt.Errorf("pattern: %d layers of %d KV heads, want %d of %d as %s has", len(p.Heads), len(p.Heads[0]), layers, heads, m.Name)
	}
	return nil
}
