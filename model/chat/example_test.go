package chat_test

import (
	"context"
	"fmt"

	"glimpse/model/chat"
)

func Example() {
	t, err := chat.Parse("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content | trim }}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}")
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := t.Render(context.Background(), []chat.Message{
		{Role: "system", Content: "Be brief."},
		{Role: "user", Content: " What is 2+2? "},
	}, chat.Options{AddGenerationPrompt: true, BOS: "<s>"})
	fmt.Printf("%q %v\n", text, err)
	// Output: "<s><|system|>\nBe brief.\n<|user|>\nWhat is 2+2?\n<|assistant|>\n" <nil>
}
