package main

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"glimpse/serving/constraint"
)

// maxText is how long a sampled text may become before it is given up.
const maxText = 20000

// sample draws texts under the masks and validates them.
func (o *outcome) sample(g *constraint.Grammar, schema []byte, n int) {
	judge, err := compile(schema)
	if err != nil {
		o.counts[unjudged]++
		return
	}
	h := fnv.New64()
	h.Write([]byte(o.name))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	for range n {
		text, ended := draw(g, r, r.IntN(200))
		if !ended {
			continue
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = judge.Validate(value)
		}
		if err == nil {
			o.counts[sampled]++
			continue
		}
		o.counts[sampledInvalid]++
		o.notes = append(o.notes, fmt.Sprintf("%s: %.300s: %s", sampledInvalid, text, strings.ReplaceAll(err.Error(), "\n", " ")))
	}
}

func compile(schema []byte) (*jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is fetched
	if err := c.AddResource("mem:///schema.json", document); err != nil {
		return nil, err
	}
	return c.Compile("mem:///schema.json")
}

// draw is a random text of the grammar. After so many bytes, what ends a string, a list or an object comes first.
func draw(g *constraint.Grammar, r *rand.Rand, length int) (text []byte, ended bool) {
	m := constraint.NewMatcher(g, vocabulary)
	logits := make([]float32, end+1)
	for len(text) < maxText {
		clear(logits)
		if m.Mask(logits) != nil {
			return text, false
		}
		var allowed []int
		for id, x := range logits {
			if !math.IsInf(float64(x), -1) {
				allowed = append(allowed, id)
			}
		}
		if len(allowed) == 0 {
			return text, false
		}
		id := allowed[r.IntN(len(allowed))]
		if len(text) > length {
			first := []int{end, '}', ']', '"'}
			if slices.Contains(allowed, '}') && slices.Contains(allowed, ']') { // within a string
				first = []int{'"'}
			}
			for _, close := range first {
				if slices.Contains(allowed, close) {
					id = close
					break
				}
			}
		}
		if err := m.Accept(int32(id)); err != nil {
			panic(err)
		}
		if id == end {
			return text, true
		}
		text = append(text, byte(id))
	}
	return text, false
}
