package datasets

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
)

// MixSource is one source of a mix.
type MixSource struct {
	Path   string  `json:"path"`             // file or folder
	Format string  `json:"format,omitempty"` // of SourceFormats; "" is auto
	Weight float64 `json:"weight,omitempty"` // share of the samples while the source lasts; 0 is 1
	Limit  int     `json:"limit,omitempty"`  // most prompts taken; 0 is all
	Fields Fields  `json:"fields,omitzero"`  // where its rows hold the prompt and the answer
}

// Validate refuses what no source can be; it opens nothing.
func (s MixSource) Validate() error {
	switch {
	case s.Path == "":
		return errors.New("got no path")
	case !(s.Weight >= 0 && s.Weight <= 1e9):
		return fmt.Errorf("weight: got %v, want above 0", s.Weight)
	case s.Limit < 0:
		return fmt.Errorf("limit: got %d, want at least 0", s.Limit)
	}
	return s.Fields.Validate()
}

// Mix draws prompts from several sources at random, in proportion to their weights;
// each source gives its own in order, once. Which source gives prompt i depends on the
// sources, their weights, the seed and i alone, so that workers that each take every
// n-th prompt share a mix without talking.
type Mix struct {
	sources []*mixSource
	rng     *rand.Rand
	index   int
}

type mixSource struct {
	MixSource
	records *PromptReader
	given   int
}

// OpenMix opens all sources. The caller closes it.
func OpenMix(sources []MixSource, seed uint64) (*Mix, error) {
	if len(sources) == 0 {
		return nil, errors.New("mix: got no sources, want at least one")
	}
	m := &Mix{rng: rand.New(rand.NewPCG(seed, 0x4d4958))}
	for i, s := range sources {
		if err := s.Validate(); err != nil {
			m.Close()
			return nil, fmt.Errorf("mix: source %d: %w", i, err)
		}
		s.Weight = cmp.Or(s.Weight, 1)
		records, err := OpenSource(s.Path, s.Format, s.Fields)
		if err != nil {
			m.Close()
			return nil, fmt.Errorf("mix: source %d: %w", i, err)
		}
		m.sources = append(m.sources, &mixSource{MixSource: s, records: records})
	}
	return m, nil
}

// Next returns the next prompt and its index from 0, or io.EOF when all sources are
// at their ends. A record that is none is a *RowError with the index that it has; the next
// one follows.
func (m *Mix) Next() (Prompt, int, error) {
	for len(m.sources) > 0 {
		total := 0.0
		for _, s := range m.sources {
			total += s.Weight
		}
		at, u := 0, m.rng.Float64()*total
		for at < len(m.sources)-1 && u >= m.sources[at].Weight {
			u -= m.sources[at].Weight
			at++
		}
		s := m.sources[at]
		err := io.EOF
		var p Prompt
		if s.Limit == 0 || s.given < s.Limit {
			p, err = s.records.Next()
		}
		var bad *RowError
		switch {
		case err == nil || errors.As(err, &bad):
			s.given++
			m.index++
			return p, m.index - 1, err
		case err == io.EOF:
			if err := s.records.Close(); err != nil {
				return Prompt{}, 0, err
			}
			m.sources = append(m.sources[:at], m.sources[at+1:]...)
		default:
			return Prompt{}, 0, err
		}
	}
	return Prompt{}, 0, io.EOF
}

// Close closes the sources that are still open.
func (m *Mix) Close() error {
	var errs []error
	for _, s := range m.sources {
		errs = append(errs, s.records.Close())
	}
	m.sources = nil
	return errors.Join(errs...)
}
