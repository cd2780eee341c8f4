// What `interface-datastore-tests` imports from the tools of its authors: chai with two plugins.

import * as chai from 'chai'
import promised from 'chai-as-promised'
import parentheses from 'chai-parentheses'

chai.use(promised)
chai.use(parentheses)

export const expect = chai.expect

// Leads its import here.
export function resolve (specifier, context, next) {
  if (specifier === 'aegir/chai') return { url: import.meta.url, shortCircuit: true }
  return next(specifier, context)
}
