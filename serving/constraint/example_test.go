package constraint_test

import (
	"fmt"
	"math"

	"glimpse/serving/constraint"
)

// The tokens that may follow the beginning of an object.
func Example() {
	tokens := [][]byte{[]byte(`{"`), []byte("name"), []byte("age"), []byte(`": `), []byte("4"), []byte("2"), []byte("-"), []byte("}"), nil}
	vocabulary := constraint.NewVocabulary(tokens, []int32{8})
	grammar, err := constraint.Schema([]byte(`{"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 40}},
		"required": ["age"], "additionalProperties": false}`), true)
	if err != nil {
		panic(err)
	}
	m := constraint.NewMatcher(grammar, vocabulary)
	for _, id := range []int32{0, 2, 3, 4} {
		if err := m.Accept(id); err != nil {
			panic(err)
		}
	}
	logits := make([]float32, len(tokens))
	if err := m.Mask(logits); err != nil {
		panic(err)
	}
	for id, x := range logits {
		if !math.IsInf(float64(x), -1) {
			fmt.Printf("%s\n", tokens[id])
		}
	}
	// Output: }
}
