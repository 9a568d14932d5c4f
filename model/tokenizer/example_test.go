package tokenizer_test

import (
	"fmt"
	"os"
	"testing/fstest"

	"glimpse/model/tokenizer"
)

func Example() {
	file, err := os.ReadFile("testdata/llama2.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	t, err := tokenizer.LoadDir(fstest.MapFS{"tokenizer.json": {Data: file}}) // mostly os.DirFS of a model's folder
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := t.Encode("keys 🚀", true)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range ids {
		token, _ := t.IDToToken(id)
		fmt.Print(" ", token)
	}
	fmt.Println()

	// Text that is being generated: what bytes are is known when their run has ended.
	s := t.NewStream(true)
	for _, id := range ids {
		fmt.Printf("%q ", s.Push(id))
	}
	fmt.Printf("%q\n", s.Flush())
	// Output:
	// <bos> ▁ key s▁ <0xF0> <0x9F> <0x9A> <0x80> <eos>
	// "" "" "key" "s " "" "" "" "" "" "🚀"
}
