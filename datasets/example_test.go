package datasets_test

import (
	"fmt"
	"strings"

	"glimpse/datasets"
)

// A short task of hops: the answer is found by following the calls from dora on.
func Example() {
	stream, err := datasets.NewStream([]string{"hops"}, datasets.Test, 44, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	example, err := stream.At(5)
	if err != nil {
		fmt.Println(err)
		return
	}
	prompt, err := datasets.WordsText(example.Prompt)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := datasets.WordsText(example.Answer)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(example.ID)
	fmt.Println(strings.ReplaceAll(prompt, " <context>", "\n<context>"))
	fmt.Println("answer:", answer)
	// Output:
	// hops/test/44/1/5
	// <bos> <user>
	// <context> red adam carrot ruth calls helen first jewel gray all helen calls gustav second garlic gray gray <passage> bench balcony hat penny </passage> gray agnes attic orchard about at adam carpet stella flute canoe </context> <chain> ruth <eot> <header> <assistant> <newline>
	// answer: helen gustav
}
