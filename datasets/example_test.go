package datasets_test

import (
	"fmt"
	"strings"

	"glimpse/datasets"
)

// A short chain task: the answer is found by following the calls from dora on.
func Example() {
	stream, err := datasets.NewStream([]string{"chain"}, datasets.Test, 44, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	example, err := stream.At(5)
	if err != nil {
		fmt.Println(err)
		return
	}
	prompt, err := datasets.Text(example.Prompt)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := datasets.Text(example.Answer)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(example.ID)
	fmt.Println(strings.ReplaceAll(prompt, " <context>", "\n<context>"))
	fmt.Println("answer:", answer)
	// Output:
	// chain/test/44/1/5
	// <bos> <user>
	// <context> rosa cradle lock first coin second basket kate calls bruno over laura stairs cake <passage> apple mirror cottage mill </passage> dora calls kate and on jane church harp clara castle melon ida tower gate </context> <chain> dora <eot> <header> <assistant> <newline>
	// answer: kate bruno
}
