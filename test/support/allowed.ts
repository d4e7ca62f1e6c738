/** The answer, which has to be a success. */
export function allowed<Answer extends { readonly success: boolean }>(
  answer: Answer,
): Extract<Answer, { readonly success: true }> {
  if (!answer.success) throw new Error('denied')
  return answer as Extract<Answer, { readonly success: true }>
}
